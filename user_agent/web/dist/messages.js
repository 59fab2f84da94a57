import{a}from"./chunk-YN22WE2T.js";export{a as messages};
